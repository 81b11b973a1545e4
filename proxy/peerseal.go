package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

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

// peerTLS reads the certificates by which proxies know each other: each is a client and a server to the others, and shows the same
// certificate. It is nil where there are none. The files are read at every connection, so that they can be replaced.
func peerTLS(p config.Peers) (*tls.Config, error) {
	if !p.Encrypted() {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(p.TLSCert, p.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("certificate for other proxies: %w", err)
	}
	signers, err := os.ReadFile(p.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("signers of the proxies' certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(signers) {
		return nil, fmt.Errorf("signers of the proxies' certificates: no certificate in %s", p.TLSCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"http/1.1"},
	}, nil
}
