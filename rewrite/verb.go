package rewrite

// Verb is what a statement does, as far as the proxy distinguishes statements.
type Verb byte

// Verbs. Lock, Unlock and ListLocks are the proxy's own.
const (
	// Unknown is not a statement that Cassandra 4.1 or 5.0 accepts.
	Unknown Verb = iota
	Select
	Insert
	Update
	Delete
	Truncate
	Batch
	Use
	Lock
	Unlock
	ListLocks
	// Schema is CREATE, ALTER or DROP of anything, roles included, and COMMENT ON and SECURITY
	// LABEL of Cassandra 6.
	Schema
	// Transaction is BEGIN TRANSACTION of Cassandra 6. TransactionWrites returns the
	// tables that it writes to.
	Transaction
	// Other is a statement that touches no rows: GRANT, REVOKE, LIST, DESCRIBE, ADD IDENTITY.
	Other
)

// String returns the verb as it is written in CQL.
func (v Verb) String() string {
	switch v {
	case Select:
		return "SELECT"
	case Insert:
		return "INSERT"
	case Update:
		return "UPDATE"
	case Delete:
		return "DELETE"
	case Truncate:
		return "TRUNCATE"
	case Batch:
		return "BATCH"
	case Use:
		return "USE"
	case Lock:
		return "LOCK"
	case Unlock:
		return "UNLOCK"
	case ListLocks:
		return "LIST LOCKS"
	case Schema:
		return "SCHEMA"
	case Transaction:
		return "TRANSACTION"
	case Other:
		return "OTHER"
	}
	return "UNKNOWN"
}

// SchemaAction is what a Schema statement does.
type SchemaAction byte

// Schema actions.
const (
	NoAction SchemaAction = iota
	Create
	Alter
	Drop
	Comment // COMMENT ON and SECURITY LABEL; its kind is SchemaTable only if it sets a table's comment
)

// SchemaKind is the kind of object that a Schema statement changes.
type SchemaKind byte

// Schema kinds. SchemaOther is anything not named here: roles, users.
const (
	SchemaOther SchemaKind = iota
	SchemaKeyspace
	SchemaTable
	SchemaView
	SchemaIndex
	SchemaTrigger
	SchemaType
	SchemaFunction
	SchemaAggregate
)
