//go:build race

package frontend

// raceDetector tells that allocations mean nothing: pools throw things away then.
const raceDetector = true
