package frontend

import (
	"strconv"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// Every attempt that is refused is told with who it was and at what: by the reference, because the lock is lost, or for want of a right.
func TestRefusedAttemptsAreAudited(t *testing.T) {
	told := make(chan Refusal, 9)
	r := newRig(t, func(o *Options) {
		o.Locks, o.References = &numberingLocks{asked: make(chan musiccore.LockRef, 9)}, NewReferences([]byte("secret"))
		o.Audit = func(refusal Refusal) { told <- refusal }
	})
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{ID: [16]byte{7}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	client, backend := r.login(d4())
	k := musiccore.Key{Table: [16]byte{7}, PK: "x"}
	right := r.server.References.Show([16]byte{}, k, 9)
	expect := func(text string, want Refusal) {
		t.Helper()
		got := <-told
		assert.Equal(t, client.LocalAddr().String(), got.By.Address, text)
		assert.Equal(t, "bank.accounts", got.Table.String(), text)
		got.By, got.Table = musiccore.Client{}, nil
		assert.Equal(t, want, got, text)
	}
	for n, want := range map[int64]Refusal{
		right:     {Key: k, Ref: 9, Why: "the lock is lost", Lost: true},
		right + 1: {Key: k, Ref: 9, Why: "not a reference of this key"},
		9:         {Key: k, Ref: 0, Why: "not a reference of this key"},
	} {
		text := "UPDATE bank.accounts USING LOCK " + strconv.FormatInt(n, 10) + " SET n = 1 WHERE id = 'x'"
		client.send(1, query(text))
		client.failure(1)
		expect(text, want)
	}
	assert.Empty(t, told)

	r.server.mu.Lock()
	for c := range r.server.conns {
		c.authenticated.Store(true)
	}
	r.server.mu.Unlock()
	for text, want := range map[string]Refusal{
		"LOCK bank.accounts WHERE id = 'x'":                                                   {Key: k, Why: "no right to MODIFY"},
		"UNLOCK bank.accounts WHERE id = 'x' FORCE":                                           {Key: k, Why: "no right to AUTHORIZE"},
		"UNLOCK bank.accounts WHERE id = 'x' USING LOCK " + strconv.FormatInt(right, 10):      {Key: k, Ref: 9, Why: "no right to MODIFY"},
		"LIST LOCKS ON bank.accounts":                                                         {Key: musiccore.Key{Table: k.Table}, Why: "no right to SELECT"},
		"LOCK bank.accounts WHERE id IN ('x', 'y')":                                           {Key: musiccore.Key{Table: k.Table}, Why: "no right to MODIFY"},
		"SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK " + strconv.Itoa(int(right)+1): {Key: k, Ref: 9, Why: "no right to SELECT"},
	} {
		client.send(1, query(text))
		backend.answer(1)
		backend.send(1, &message.Unauthorized{ErrorMessage: "no"})
		assert.Equal(t, "no", client.failure(1).GetErrorMessage(), text)
		expect(text, want)
	}
	assert.Empty(t, told)
}

// Where Cassandra takes the role from the certificate of clients' connections it ignores what they log in as, and so does the audit.
func TestTheAuditHasTheRoleOfTheCertificate(t *testing.T) {
	for given, want := range map[string]string{"app": "app", "": "anna"} {
		told := make(chan Refusal, 1)
		r := rightsRig(t, untouchableLocks{}, func(o *Options) {
			o.RoleByCertificate, o.Audit = func() string { return given }, func(refusal Refusal) { told <- refusal }
		})
		client, backend := r.loginAs(d4(), "anna")
		client.send(1, query("LOCK bank.accounts WHERE id = 'x'"))
		backend.answer(1)
		backend.send(1, &message.Unauthorized{ErrorMessage: "no"})
		client.failure(1)
		assert.Equal(t, want, (<-told).By.Role)
	}
}
