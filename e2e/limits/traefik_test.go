//go:build unix

package limits_test

import (
	"flag"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/e2e/internal/harness"
)

// Debian has no Traefik, and building one takes minutes, so that it is measured only where there is one.
var traefikPath = flag.String("limits.traefik", "", "path of a Traefik program, to measure behind its limits too")

// traefiks are limits of Traefik 3. Its buckets delay what comes a little too early before they refuse.
var traefiks = []shape{
	{name: "traefik 20 in 1s, burst 20", traefik: "rateLimit: {average: 20, period: 1s, burst: 20}", status: 429, bounds: bucket(20, 19)},
	{name: "traefik 10 in 1s, burst 1", traefik: "rateLimit: {average: 10, period: 1s, burst: 1}", status: 429, bounds: bucket(10, 0)},
	{name: "traefik 120 in 1m, burst 10", traefik: "rateLimit: {average: 120, period: 1m, burst: 10}", status: 429, bounds: bucket(2, 9)},
	{
		name: "traefik 20 in 1s, burst 20, 150 ms", traefik: "rateLimit: {average: 20, period: 1s, burst: 20}", status: 429,
		answers: 150 * time.Millisecond, bounds: bucket(20, 19),
	},
	{
		name: "traefik inFlightReq 4, 200 ms", traefik: "inFlightReq: {amount: 4}", status: 429,
		answers: 200 * time.Millisecond, bounds: []bound{{control.Concurrency, 4, 200 * time.Millisecond, 0}},
	},
}

// traefikConfiguration puts everything through to the origin, under the limit. What is at
// /ready is not under it, and tells when the configuration is in force.
const traefikConfiguration = `http:
  routers:
    api: {rule: "PathPrefix(` + "`/`" + `)", middlewares: [limit], service: origin}
    ready: {rule: "Path(` + "`/ready`" + `)", service: origin, priority: 1000}
  middlewares:
    limit:
      {limit}
  services:
    origin: {loadBalancer: {servers: [{url: "http://{origin}"}]}}
`

// traefikFront is a Traefik of its own, before an origin.
func (s shape) traefikFront(t *testing.T, origin string) *server {
	t.Helper()
	f := newFront(t, *traefikPath, "")
	file := filepath.Join(f.prefix, "dynamic.yaml")
	harness.Write(t, file, strings.NewReplacer("{limit}", s.traefik, "{origin}", origin).Replace(traefikConfiguration))
	f.args = []string{
		"--global.checkNewVersion=false", "--global.sendAnonymousUsage=false",
		"--entryPoints.web.address=" + f.address, "--providers.file.filename=" + file, "--providers.file.watch=false",
		"--log.filePath=" + filepath.Join(f.prefix, "error.log"),
		"--accessLog.format=json", "--accessLog.filePath=" + filepath.Join(f.prefix, "access.log"),
	}
	return f
}

// awaitTraefik waits until the configuration is in force.
func awaitTraefik(t *testing.T, f *server) {
	t.Helper()
	harness.Eventually(t, "traefik serves", func() bool {
		resp, err := http.Get("http://" + f.address + "/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// traefikRequests is what Traefik logged of each request. It stops Traefik first.
func traefikRequests(t *testing.T, f *server) (all []request) {
	t.Helper()
	f.stop()
	for _, l := range records[struct {
		StartUTC         time.Time
		Duration         time.Duration
		DownstreamStatus int
		RequestPath      string
	}](t, filepath.Join(f.prefix, "access.log")) {
		if l.RequestPath != "/ready" {
			all = append(all, request{
				At: float64(l.StartUTC.Add(l.Duration).UnixMicro()) / 1e6, Took: l.Duration.Seconds(), Status: l.DownstreamStatus, URI: l.RequestPath,
			})
		}
	}
	return all
}
