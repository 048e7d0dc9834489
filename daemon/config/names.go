package config

import (
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/quotafile"
)

// Names for parts of the configuration that other packages check, and for what is
// wrong with it.
type (
	// Key is one Headway key.
	Key = egress.Key
	// Quota is a budget, complete and checked.
	Quota = quotafile.Settings
	// Secret is a credential. It prints as it was written in the file, such as
	// ${OPENAI_API_KEY}; only its Reveal gives what it stands for. The zero value means
	// none.
	Secret = configfile.Secret
	// Problem is one thing that is wrong, and where.
	Problem = configfile.Problem
	// Error is everything that is wrong with a file, in its order.
	Error = configfile.Error
)
