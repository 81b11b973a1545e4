// Package struck runs the services of package service under faults, and judges what they did.
//
// Workers and owners are processes. While one of them is in a section it is killed, and started again; or it stands still for longer
// than its lease (SIGSTOP); or it is cut off from its store for as long, by a relay that keeps what is said and delivers it late. What
// the processes tell of themselves is one history, on one clock, and [Result.Faults] says what is wrong in it:
//
//   - entry consistency under failures is broken on the key of a job or of a user (package judge);
//   - a state of a job was worked on by two workers at once;
//   - a state, or a change of a role, was carried out twice: somebody began from what was not the latest;
//   - a job that was submitted is not DONE and gone;
//   - a change that was acknowledged is not in the role that the user has in the end.
package struck
