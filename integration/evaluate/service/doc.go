// Package service is the two services that MUSIC was made for (paper VII), as programs over any system
// of the evaluation: [Homing], whose workers take jobs from a pool and lead each through its states, and
// [Portal], whose back-end replicas own users and change their roles.
//
// VII.a, VNF homing. "A Client API replica … creates a key in MUSIC with this jobId … using the put
// operation without any locks. It then periodically checks to see if the job has been completed … in
// order to delete completed jobs": [API]. "At each worker, in a periodic loop": [Worker] lists the keys,
// takes them in the order of their submission, gets each without a lock, tries to enter where it is not
// DONE, reads the latest state in the section, and puts each next state when it has executed the one
// before.
//
// VII.b, Portal. "write (userID, role) at Portal REST front end": [FrontEnd] asks the owner, and the next
// closest replica where that fails. "write (userID, role) at Portal back end P" and "own (userID)":
// [BackEnd] ends the section of the owner before it by its lock reference, enters, and tells without a
// lock that it is the owner now.
//
// Where the text is silent, or leaves failures out "for simplicity", this was chosen:
//
//   - A jobId begins with the time of its submission, so that the order of the keys is that of the jobs.
//   - Figure 3(b), the states of a job, is not in the text: they are those of ONAP's HAS, the service
//     that the paper cites.
//   - Whoever is not answered, or told that its section is lost, does nothing more under it (paper III,
//     "Failure Semantics"): a worker goes on with the next job, a back end answers that it failed.
//   - Where the system says for how long a section is kept, its holder looks at its own clock before and
//     after each piece of work, and renews what it keeps. The paper's MUSIC says nothing of the kind to
//     its holders, so there is nothing to look at.
//   - A front end numbers the changes of a user, and the value keeps the number: a back end that hears a
//     change for the second time, since its first answer was lost, does not repeat it over a later one.
//   - A front end that is told "I am not the owner any more" reads again who is.
//   - The misprint of the pseudo-code, by which only a new owner writes (criticalPut stands inside of the
//     if), is mended.
//
// Package struck runs both under faults and judges what they did.
package service
