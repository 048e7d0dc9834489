package collect

import "github.com/headway-go/headway/connector"

// Trail finds a cursor that repeats.
type Trail = connector.Trail
