// Package usage reads from the answer of a language model what the call used,
// while the answer passes through.
//
// A [Scanner] follows one response body, whole JSON or a stream of events, in
// the words of OpenAI, Anthropic or Gemini, and its [Report] has the provider's
// figures as [quota.Usage], the tokens that flowed so far, whether the end came,
// and the error that some providers send inside a stream that began with 200. A
// body that breaks off is reported as far as it was seen.
//
// OpenAI's chat reports usage in a stream only to those who ask. [Inject] asks in
// the client's request; a [Stripper] then takes out of the stream what was added,
// so that the client gets what it would have got.
//
// # When not to use it
//
// It takes plain bytes: a compressed body has to be unpacked first, or better not
// be asked for. It does not judge status codes and headers, nor whole error
// answers beyond a word for the problem; package signal does. It does not check
// JSON: what it does not understand passes and says nothing.
//
// # Concurrency, time and memory
//
// Scanners and strippers are for one goroutine each; the functions are pure. No
// clock is read. A Scanner keeps half a kilobyte whatever it is fed; it passes
// some 600 MB/s of short chunks, and more of long texts. A Stripper holds at most
// [MaxEvent] bytes.
package usage
