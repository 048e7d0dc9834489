// Package dataverse is a simulated Dataverse environment, over real HTTP: what a
// bulk load is tested against. An [API] is mounted on a [serve.Server]; its
// built-in scenario ([API.Scenario]) has the documented limits.
//
// # Endpoints
//
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.CreateMultiple   200 {"Ids":[...]}
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.UpdateMultiple   204
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.UpsertMultiple   204
//	POST  /api/data/v9.2/{set}           204, one row is created
//	PATCH /api/data/v9.2/{set}({key})    204, one row is upserted; updated with If-Match: *
//	GET   /api/data/v9.2/{set}({key})    200, or 404 when it is not held
//	GET   /api/data/v9.2/{set}/$count    how many are held
//	GET   /-/dataverse                   a [Report]; never limited
//
// Any version v9.x and any entity set are accepted. What is kept of a row is its name and a hash of its
// columns, so a read answers with those and not with the columns, and a million
// rows take 50 to 90 MB. A row's name is, in this order, the alternate key or id in
// its @odata.id, its primary key ({type}id, a GUID), the columns of
// [Options].AlternateKey; a row with none is only ever created, under a new id. An
// update replaces the hash, it does not merge. Rows that occur twice in one batch
// are written in order.
//
// # Limits
//
// A user is a bearer token. Each user has on each web server: 6,000 requests and
// 1,200 s of execution in any 300 s, and 52 requests at once; or what the scenario
// says. A refusal is a 429 with Dataverse's code and Retry-After. The first begins
// a block of 5 s; a request during a block doubles it, up to 300 s; after
// 120 s without a refusal the next block is 5 s again. Execution is charged on
// admission.
// Requests go to the servers in turn, unless the cookie ARRAffinity names one.
// Every answer to a known user tells x-ms-dop-hint, and what the limits of that user and
// server have left. What is refused as malformed, too large or unknown meets no
// limit.
//
// A batch of n rows executes for [Options].Overhead + n x [Options].RowTime, and
// 400 ms go by on the way there and back. With the defaults (200 ms and 21 ms)
// batches of 450 rows, four at a time, give about 176 rows a second, just below
// the limit of execution.
//
// # Rows that fail
//
// A standard table takes all rows of a batch or none; the error tells of the first
// at fault. An elastic table takes those it can: where some fail, the error holds,
// if the request's Prefer asks for annotations, the status of each row in
// @Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails. Rows fail by
// [Options].FailEvery, when they are to be updated and are not held, or created and
// held, and by the column sim_fault:
//
//	reject     the row is refused, always
//	throttle   the row of an elastic table is refused with 429, the first time
//	cut        the batch is written and the connection reset, the first time
//	garbage    the batch is written and answered with what is not JSON, the first time
//
// [Options].Faults are the same, and more, by the number of the request. A batch
// that executes is written even if its client goes away.
//
// A row without a name that is created with the very columns of another such row
// is a duplicate: it is held twice, and counted.
//
// # Scale
//
// With [Options].Scale n all times are n times shorter: windows, execution,
// latency, penalties, and the time of hints. Retry-After is in whole seconds,
// rounded up, so the exact wait is in Retry-After-Ms; clients should wait for that.
// What remains of execution, and the texts of errors, are not scaled.
//
// Do not use it to learn what Dataverse takes: it has no columns, types, plug-ins or
// privileges. An API is for one server, and safe for concurrent use. Time is real,
// or that of a testing/synctest bubble.
package dataverse
