package collect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headway-go/headway/connector"
)

// checkStreams holds the streams of a run against those that there are.
func (o Options) checkStreams() error {
	if o.Streams == nil {
		return nil
	}
	if o.Fresh {
		return fmt.Errorf("collect: streams are named and fresh is set, but fresh forgets the whole connection")
	}
	return CheckStreams(o.Streams, o.Connector.Streams())
}

// CheckStreams reports a name that is not one of the streams; the error names
// those that there are.
func CheckStreams(names []string, streams []connector.Stream) error {
	var all []string
	for _, s := range streams {
		all = append(all, s.Name)
	}
	for _, name := range names {
		i := slices.IndexFunc(streams, func(s connector.Stream) bool { return name != "" && s.DetailStream == name })
		switch {
		case slices.Contains(all, name):
		case i >= 0:
			return fmt.Errorf("stream %q is collected with %s, whose details it holds: name that", name, streams[i].Name)
		default:
			return fmt.Errorf("no stream %q in this connection, which has %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

// chosen are the streams that the run collects, in the connector's order.
func (r *run) chosen() []connector.Stream {
	all := r.o.Connector.Streams()
	if r.o.Streams == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s connector.Stream) bool { return !slices.Contains(r.o.Streams, s.Name) })
}

// concerns reports whether a gap is of a stream that the run collects.
func (r *run) concerns(g Gap) bool {
	return r.o.Streams == nil || slices.Contains(r.o.Streams, g.Parent)
}
