// Package stored reads what a sink committed: JSON that a state kept for it, which
// may be another sink's after a change of the connection. It keeps and writes nothing.
package stored

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Position reads a committed position into p and has check look at it. Nothing, and
// null, is the very beginning: p stays as it is and check is not called. The error
// begins with the sink's name and says what to do; note, such as "; no file was
// changed", follows the statement that the position cannot be read.
func Position(sink, note string, position json.RawMessage, p any, check func() error) error {
	if len(position) == 0 || string(position) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(position))
	d.DisallowUnknownFields() // another sink's position is not an empty one
	err := d.Decode(p)
	if err == nil {
		err = check()
	}
	if err != nil {
		return fmt.Errorf("%s: the committed position cannot be read%s: %w: "+
			"is the connection's sink still the same? Start over with `headway collect --fresh` if it is not", sink, note, err)
	}
	return nil
}
