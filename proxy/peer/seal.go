package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// sealFor is how far the time in a sealed request may differ from this proxy's clock.
const sealFor = 30 * time.Second

// errSeal means that a message was sealed with another secret or not at all, or too long ago.
var errSeal = errors.New("not sealed with this cluster's secret, or its time is off by more than 30 s")

// seal is the secret that the proxies of a cluster share. Each message has a seal: an HMAC-SHA256
// over its parts. That of an answer also covers the seal of the question, so that it fits no other.
// The empty secret seals nothing and accepts everything.
type seal string

// of returns the HMAC of a message's parts.
func (s seal) of(parts ...string) string {
	mac := hmac.New(sha256.New, []byte(s))
	for _, part := range parts {
		_, _ = fmt.Fprintf(mac, "%d:%s\n", len(part), part) // it never fails
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// request seals a request. The seals of equal requests differ, by a nonce.
func (s seal) request(r *http.Request, body []byte) {
	if s == "" {
		return
	}
	r.Header.Set(headerTime, strconv.FormatInt(time.Now().UnixMilli(), 10))
	r.Header.Set(headerNonce, rand.Text())
	r.Header.Set(headerSeal, s.ofRequest(r, body))
}

// ofRequest returns the seal of a request.
func (s seal) ofRequest(r *http.Request, body []byte) string {
	return s.of(r.Method, r.URL.Path, r.Header.Get(headerVersion), r.Header.Get(headerTime), r.Header.Get(headerNonce), string(body))
}

// checkRequest returns errSeal for a request that is not sealed, or was sealed too long ago.
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

// nonces holds the nonces of sealed requests that have arrived, so that none is carried out twice.
// A request can be accepted for at most twice sealFor, and its nonce is kept for longer. Only
// nonces of requests with a valid seal are kept. It is safe for concurrent use.
type nonces struct {
	mu          sync.Mutex
	now, before map[string]struct{}
	turned      time.Time
}

// first adds a nonce, and reports whether it is new.
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

// response returns the seal of the answer to a request.
func (s seal) response(request http.Header, status int, body []byte) string {
	if s == "" {
		return ""
	}
	return s.of(request.Get(headerSeal), strconv.Itoa(status), string(body))
}

// checkResponse returns errSeal for an answer that is not sealed for this request.
func (s seal) checkResponse(request, response http.Header, status int, body []byte) error {
	if s != "" && !s.same(response, s.response(request, status, body)) {
		return errSeal
	}
	return nil
}

// same reports whether a message has the wanted seal. It compares in constant time.
func (s seal) same(h http.Header, want string) bool {
	return hmac.Equal([]byte(h.Get(headerSeal)), []byte(want))
}
