package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// What the server bounds. There is no timeout on writing an answer, nor on
// reading a whole request: both would cut answers that the scenario makes slow.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	drainTime     = 5 * time.Second
)

// serve runs the provider until the command's context ends or a signal comes.
func (p *provision) serve(cmd *cobra.Command) (err error) {
	s, err := p.provided(cmd)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal is not held back

	closeLog, err := p.openLog(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	handler, err := serve.New(s, p.options)
	if err != nil {
		return usage(err)
	}
	if err := p.ready.remove(); err != nil {
		return usage(err)
	}
	listener, err := p.open(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil // it was stopped before it began
	case err != nil:
		return err
	}
	began, url := time.Now(), baseURL(listener.Addr())
	if err := p.ready.write(url); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, p.ready.remove()) }()
	fmt.Fprintln(cmd.ErrOrStderr(), "headway: "+p.banner(s, url))
	err = errors.Join(serveUntil(ctx, listener, handler, cmd.ErrOrStderr()), handler.Close())
	fmt.Fprintf(cmd.ErrOrStderr(), "headway: stopped after %s: %s\n", clock(time.Since(began)), talliesText(handler.Stats()))
	return err
}

// serveUntil serves on the listener, which it closes, until the context ends;
// then it waits for the requests under way, and cuts those that take longer than
// the time to drain. When it returns, no handler runs.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler, complaints io.Writer) error {
	var running handling
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           running.around(handler),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(complaints, "headway: ", 0),
	}
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if e := server.Serve(listener); !errors.Is(e, http.ErrServerClosed) {
			failed = e
		}
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	draining, end := context.WithTimeout(requests, drainTime)
	defer end()
	if server.Shutdown(draining) != nil {
		cut()
		_ = server.Close() // of connections only: the listener is closed already
	}
	running.wait()
	<-ended
	return failed
}

// handling knows whether a handler runs. The server itself does not wait for
// those whose connections it cut, and the log and the counts must be whole.
type handling struct{ mu sync.RWMutex }

func (h *handling) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.mu.TryRLock() {
			return // it is over; the connection is closed already
		}
		defer h.mu.RUnlock()
		next.ServeHTTP(w, r)
	})
}

// wait lets the running ones end, and no other begin.
func (h *handling) wait() { h.mu.Lock() }

// openLog opens what the flag names, for appending.
func (p *provision) openLog(stdout io.Writer) (closeLog func() error, err error) {
	switch p.log {
	case "":
		return func() error { return nil }, nil
	case "-":
		p.options.Log = stdout
		return func() error { return nil }, nil
	}
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, usage(fmt.Errorf("--log: %w", err))
	}
	p.options.Log = f
	return f.Close, nil
}

// banner says what is served where, how to stop it, and what to try.
func (p *provision) banner(s *scenario.Scenario, url string) string {
	var limits []string
	for _, l := range s.Provider.EachLimit {
		limits = append(limits, l.String())
	}
	if len(limits) == 0 {
		limits = []string{"no limits"}
	}
	data := figure.Count(int64(p.options.Conversations)) + " conversations"
	switch p.data {
	case dataLLM:
		data = "language models"
	case dataDataverse:
		data = p.tables.text()
	}
	return fmt.Sprintf("serving %s at %s (%s; %s, seed %d); stop it with Ctrl-C; try: %s",
		s.Name, url, strings.Join(limits, ", "), data, p.options.Seed, p.trial(url))
}

// talliesText is what was admitted and refused, and by what.
func talliesText(st serve.Stats) string {
	s := fmt.Sprintf("%s admitted, %s refused", figure.Count(st.Admitted), figure.Count(st.Throttled+st.Failed))
	var by []string
	for _, limit := range slices.Sorted(maps.Keys(st.ByLimit)) {
		by = append(by, fmt.Sprintf("%s by %s", figure.Count(st.ByLimit[limit]), limit))
	}
	if len(by) > 0 {
		s += " (" + strings.Join(by, ", ") + ")"
	}
	if st.Unauthorized > 0 {
		s += fmt.Sprintf(", %s without the token", figure.Count(st.Unauthorized))
	}
	return s
}

// open listens. What other machines can reach needs a token: that is decided on
// the address that the name stands for, and it is that address which is opened.
func (p *provision) open(ctx context.Context) (net.Listener, error) {
	host, text, err := net.SplitHostPort(p.listen)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen is %q, must be HOST:PORT such as 127.0.0.1:8080", p.listen))
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen has port %q, must be from 0 to 65535", text))
	}
	host = cmp.Or(host, "127.0.0.1")
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, usage(fmt.Errorf("--listen: %w", err))
	}
	// As net.Listen does: an IPv4 address when the name has one.
	ip := ips[max(0, slices.IndexFunc(ips, func(ip netip.Addr) bool { return ip.Unmap().Is4() }))].Unmap()
	if p.options.Token == "" && !ip.IsLoopback() {
		return nil, usage(fmt.Errorf("--listen %s can be reached from other machines, so it needs a token: set $%s (or --token), or listen on 127.0.0.1:%d",
			p.listen, tokenVariable, port))
	}
	network := "tcp"
	if ip.Is4() {
		network = "tcp4" // else 0.0.0.0 would open every IPv6 address too
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, netip.AddrPortFrom(ip, uint16(port)).String())
	if err != nil {
		return nil, usage(fmt.Errorf("--listen: %w (port 0 takes a free one)", err))
	}
	return listener, nil
}

// baseURL is where clients on this machine find a listener.
func baseURL(at net.Addr) string {
	host := at.String()
	if a, err := netip.ParseAddrPort(host); err == nil && a.Addr().IsUnspecified() {
		local := netip.IPv6Loopback()
		if a.Addr().Unmap().Is4() {
			local = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		host = netip.AddrPortFrom(local, a.Port()).String()
	}
	return (&url.URL{Scheme: "http", Host: host}).String()
}
