// Package apps runs applications that others wrote, their sources untouched, against a real Cassandra three ways: directly, through a
// proxy with ordinary tables, and through a proxy with their tables critical. A test that ends otherwise than it does directly must be
// among the expected differences. It also runs a small shop in four languages and counts its lost updates.
//
// `make apps` fetches and builds what runs here, and then runs the tests, which need no network.
package apps
