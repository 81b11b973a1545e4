package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"music/config"
)

// sealFor is how old a sealed request may be, by clocks that may differ.
const sealFor = 30 * time.Second

// errSeal: a message was not made by somebody who knows the secret, or long ago.
var errSeal = errors.New("not sealed with this cluster's secret, or its time is off by more than 30 s")

// seal is the proxies' shared secret. Each message carries an HMAC-SHA256 over all of it that matters; that of an answer covers its
// question's too, so that it answers no other. The empty secret seals nothing and accepts everything.
type seal string

// of is the HMAC of a message's parts.
func (s seal) of(parts ...string) string {
	mac := hmac.New(sha256.New, []byte(s))
	for _, part := range parts {
		_, _ = fmt.Fprintf(mac, "%d:%s\n", len(part), part) // it never fails
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// request puts a seal on a request.
func (s seal) request(r *http.Request, body []byte) {
	if s == "" {
		return
	}
	at := strconv.FormatInt(time.Now().UnixMilli(), 10)
	r.Header.Set(headerTime, at)
	r.Header.Set(headerSeal, s.of(r.Method, r.URL.Path, r.Header.Get(headerVersion), at, string(body)))
}

// checkRequest refuses a request that is not sealed, or was sealed long ago.
func (s seal) checkRequest(r *http.Request, body []byte) error {
	if s == "" {
		return nil
	}
	at := r.Header.Get(headerTime)
	ms, err := strconv.ParseInt(at, 10, 64)
	fresh := err == nil && time.Since(time.UnixMilli(ms)).Abs() <= sealFor
	if !s.same(r.Header, s.of(r.Method, r.URL.Path, r.Header.Get(headerVersion), at, string(body))) || !fresh {
		return errSeal
	}
	return nil
}

// response is the seal of the answer to a request.
func (s seal) response(request http.Header, status int, body []byte) string {
	if s == "" {
		return ""
	}
	return s.of(request.Get(headerSeal), strconv.Itoa(status), string(body))
}

// checkResponse refuses an answer that is not one to this request.
func (s seal) checkResponse(request, response http.Header, status int, body []byte) error {
	if s != "" && !s.same(response, s.response(request, status, body)) {
		return errSeal
	}
	return nil
}

// same compares the seal of a message with what it should be, in a time that does not depend on either.
func (s seal) same(h http.Header, want string) bool {
	return hmac.Equal([]byte(h.Get(headerSeal)), []byte(want))
}

// peerKeys reads the certificates by which proxies know each other. It is nil where there are none.
func peerKeys(p config.Peers, log zerolog.Logger) (*keyring, error) {
	if !p.Encrypted() {
		return nil, nil
	}
	keys, err := newKeyring(func() (*tls.Config, error) { return peerTLS(p) }, log, p.TLSCert, p.TLSKey, p.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("TLS between proxies: %w", err)
	}
	return keys, nil
}

// peerTLS is how proxies speak to each other: each is a client and a server to the others, and shows the same certificate.
func peerTLS(p config.Peers) (*tls.Config, error) {
	own, signers, err := readPapers(p.TLSCert, p.TLSKey, p.TLSCA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: own,
		RootCAs: signers, ClientCAs: signers, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}, nil
}
