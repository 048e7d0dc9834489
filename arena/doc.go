// Package arena answers how rivals fare against the providers that the
// simulator models: their own code, unchanged, in testing/synctest bubbles, so
// that an hour takes a second or so and their own timers run on virtual time.
//
// [Play] runs one [Rival] through one scenario; [Rivals] lists them with the
// configuration that each is given. The figures are drawn up by sim.Ledger
// against the same oracle as those of headway's laws, so both are the same
// thing counted in the same way. [Judge] holds a law against the targets.
//
// # How a rival sends
//
// Each client of a scenario has as many workers as it may have attempts in
// flight. A worker takes the next piece of work, hands it to the rival and waits
// until the rival gives up or brings the answer; work that was not admitted goes
// back to the head of the line. Clients have a rival each; the clients of a fleet
// share one, with what it learns.
//
// The wire between them is an http.RoundTripper in memory. It sleeps for the
// uplink, asks the model, sleeps for the rest and answers with the status,
// Retry-After and limit headers that the provider sends. Latencies, costs and
// arrivals are drawn by the simulator's own sampler.
//
// Nothing holds a rival to the owner's ceiling, which it does not know: the
// oracle and headway keep it, so a rival may do better where the ceiling binds.
//
// # Time and chance
//
// Time stands still while anything in a bubble can run. A rival that waits for
// no time, or fails without sending, would stand still for ever: [Spin] is
// charged for it. What the model and the sampler leave to chance comes from the
// seed; a rival's own jitter, where it has any, and the order of what its workers
// do in one instant come from the process, so its figures differ a little from run
// to run.
//
// Do not use it to measure speed: virtual time says nothing of CPU. The
// benchmarks of this module do that, in real time.
//
// A run is for one goroutine that is not in a bubble; runs may go side by side.
package arena
