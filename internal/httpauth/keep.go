package httpauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/oauth2"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
)

// tokenFile stores one refresh token. Processes that share the file take turns.
type tokenFile struct {
	path string
	disk disk.Disk
}

// keptToken is the file's content.
type keptToken struct {
	// Of identifies what the owner's file contained when the token was received: a token
	// that its owner has replaced there since goes before this one.
	Of           string `json:"of"`
	RefreshToken string `json:"refresh_token"`
}

// tokenRoom is reserved on the disk before a token is requested: once a provider has
// rotated a refresh token, it rejects the old one, so a full disk must be found before
// that.
const tokenRoom = 32 << 10

// KeepError is the error if a file cannot store a token. Its text names the file only.
type KeepError struct {
	path string
	err  error
}

// Error names the file and the cause.
func (e *KeepError) Error() string {
	return fmt.Sprintf("the refresh token cannot be kept in %s: %v", e.path, e.err)
}

// Unwrap returns the cause.
func (e *KeepError) Unwrap() error { return e.err }

// invalidGrant is OAuth2's code for a refresh token that is not (or no longer) accepted.
const invalidGrant = "invalid_grant"

// CutOffError is the error if a refresh token is refused after an earlier renewal, by
// this process or a killed one, was interrupted before its answer was stored: the
// provider has replaced the token, and the new one is lost. It cannot be recovered here,
// since a provider that rotates tokens accepts each only once.
type CutOffError struct{ path string }

// Error says what happened and what to do.
func (e *CutOffError) Error() string {
	return "the refresh token is no longer taken: an earlier renewal was cut off before its answer came, and the provider has probably replaced the token with one that is lost; " +
		"authorize again and put the new refresh token where oauth2.refresh_token reads it"
}

// of returns what a token was obtained with; it contains no secret.
func (o *OAuth2) of() string {
	sum := sha256.New()
	for _, s := range []string{o.TokenURL.String(), o.ClientID.Reveal(), o.RefreshToken.Reveal()} {
		fmt.Fprintf(sum, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// renew calls ask with the stored token, or with first if there is none, and makes the
// token that ask returns durable before it returns. No other process renews at the same
// time.
func (f *tokenFile) renew(ctx context.Context, of, first string, ask askToken) error {
	if err := disk.MkdirAll(f.disk, filepath.Dir(f.path), 0o700); err != nil {
		return &KeepError{f.path, plainCause(err)}
	}
	began := false
	err := lockfile.With(ctx, f.path+".lock", func(ctx context.Context) error {
		began = true
		return f.renewLocked(ctx, of, first, ask)
	})
	if err != nil && !began && ctx.Err() == nil {
		return &KeepError{f.path, plainCause(err)}
	}
	return err
}

// askToken requests a token with a refresh token, and returns the refresh token that
// replaces it.
type askToken func(ctx context.Context, refresh string) (rotated string, err error)

// renewLocked is renew with the file locked.
func (f *tokenFile) renewLocked(ctx context.Context, of, first string, ask askToken) error {
	refresh, err := f.read(of)
	if err != nil {
		return err
	}
	if refresh == "" {
		refresh = first
	}
	_, left := os.Stat(atomicfile.Beside(f.path))
	room, err := atomicfile.Reserve(f.disk, f.path, tokenRoom)
	if err != nil {
		return &KeepError{f.path, plainCause(err)}
	}
	rotated, err := ask(ctx, refresh)
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case err != nil && !answered:
		// The provider may have rotated the token anyway: the reserved space stays, so
		// that the next refusal is recognized.
		return errors.Join(err, room.Leave())
	case err != nil && left == nil && refused.ErrorCode == invalidGrant:
		return errors.Join(&CutOffError{f.path}, err, room.Leave())
	case err != nil || rotated == "" || rotated == refresh:
		return errors.Join(err, room.Discard())
	}
	b, err := json.Marshal(keptToken{Of: of, RefreshToken: rotated})
	if err == nil {
		err = room.Commit(b)
	}
	if err != nil {
		return &KeepError{f.path, plainCause(err)}
	}
	return nil
}

// read returns the stored token; empty if there is none for this connection. A token that
// a killed process had written but not yet renamed counts, and is renamed.
func (f *tokenFile) read(of string) (string, error) {
	if next, err := readKept(atomicfile.Beside(f.path)); err == nil && next.Of == of && next.RefreshToken != "" {
		if err := atomicfile.Place(f.disk, f.path); err != nil {
			return "", &KeepError{f.path, plainCause(err)}
		}
	}
	kept, err := readKept(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", &KeepError{f.path, fmt.Errorf("%w; remove it to begin with the connection's own token", plainCause(err))}
	case kept.Of != of:
		return "", nil
	}
	return kept.RefreshToken, nil
}

func readKept(path string) (k keptToken, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	if json.Unmarshal(b, &k) != nil {
		return k, errors.New("it is not a token's file")
	}
	return k, nil
}

// plainCause returns an error of the file system without its path.
func plainCause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
