// Package experiment measures the systems of the evaluation beside each other: the figures of the MUSIC paper again, and what
// none of its kind has measured.
//
// A figure is measured in a [World]: three sites of an emulated network, a Cassandra node and a proxy of the product in each. All
// systems of a figure take turns in it, round by round, so that what else the machine does meets them all. What a figure says is
// the ratio of two systems in the same round, its median and its spread; absolute numbers are those of the machine.
//
// A system that fails its own test in a world is not timed there. A world whose network is not what it should be is refused.
package experiment
