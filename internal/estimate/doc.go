// Package estimate says, before a call to a language model, about how many
// tokens it will use: what a budget reserves until the provider's own figures
// are there.
//
// [Estimator.Raw] counts the prompt. The real tokenizer reads a kilobyte of
// it; all of it is weighed by the kinds of bytes that follow each other,
// with a table fitted to that tokenizer, so that base64, CJK and code are not
// mistaken for English, and the tokens of what was read correct the weight of
// the rest. Once that was done for some prompts of a model, the tokenizer reads
// one in 64, and the others are weighed, with the correction that those taught;
// when one that is read is off by a quarter, it reads the next ones again.
//
// [Estimator.Scale] applies what [Estimator.Learn] was taught by the model's
// calls: models of other makers count otherwise, and every API adds something of
// its own. [Estimator.Input] is both in one, for callers that do not learn.
// [Estimator.Output] expects what the model gave on average.
//
// Do not use it to bill or to cut a prompt to a model's context: it is within
// some percent of the truth, not the truth. It knows nothing of images and sound;
// the caller adds those.
//
// An Estimator is safe for concurrent use. Nothing reads a clock. The first
// count with a vocabulary loads it, which takes some 30 ms and 6 MB once in a
// process; [Load] does that ahead. Work is bounded: a count takes about 7 µs for
// 100 bytes of English, 70 µs for a kilobyte, 0.2 ms for 100 kB and 1.5 ms for
// 10 MB where the tokenizer reads, and a microsecond a kilobyte where it does not.
package estimate
