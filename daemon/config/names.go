package config

import (
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/quotafile"
)

// Names for parts of the configuration that other packages check.
type (
	// Key is one Headway key.
	Key = egress.Key
	// Quota is a budget, complete and checked.
	Quota = quotafile.Settings
)
