package proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
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

// request puts a seal on a request, which is like that of no other.
func (s seal) request(r *http.Request, body []byte) {
	if s == "" {
		return
	}
	r.Header.Set(headerTime, strconv.FormatInt(time.Now().UnixMilli(), 10))
	r.Header.Set(headerNonce, rand.Text())
	r.Header.Set(headerSeal, s.ofRequest(r, body))
}

// ofRequest is the seal of a request.
func (s seal) ofRequest(r *http.Request, body []byte) string {
	return s.of(r.Method, r.URL.Path, r.Header.Get(headerVersion), r.Header.Get(headerTime), r.Header.Get(headerNonce), string(body))
}

// checkRequest refuses a request that is not sealed, or was sealed long ago.
func (s seal) checkRequest(r *http.Request, body []byte) error {
	if s == "" {
		return nil
	}
	at := r.Header.Get(headerTime)
	ms, err := strconv.ParseInt(at, 10, 64)
	fresh := err == nil && time.Since(time.UnixMilli(ms)).Abs() <= sealFor
	if !s.same(r.Header, s.ofRequest(r, body)) || !fresh {
		return errSeal
	}
	return nil
}

// nonces knows which sealed requests have come. A request is believed for twice sealFor, by clocks that differ the most; it is remembered
// for longer. Only who knows the secret makes it remember anything. For concurrent use.
type nonces struct {
	mu          sync.Mutex
	now, before map[string]struct{}
	turned      time.Time
}

// first reports whether a request has not come before.
func (n *nonces) first(nonce string, at time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now == nil || at.Sub(n.turned) > 2*sealFor {
		n.before, n.now, n.turned = n.now, map[string]struct{}{}, at
	}
	_, before := n.before[nonce]
	if _, now := n.now[nonce]; now || before {
		return false
	}
	n.now[nonce] = struct{}{}
	return true
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
