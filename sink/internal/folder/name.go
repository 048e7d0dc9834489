package folder

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName bounds a stream's name in bytes: file systems take 255, and what is
// named after it has to have room for what is put around the name.
const MaxName = 180

// Name is a stream's name as a name on disk. Letters, digits, dot, dash and
// underscore stay; anything else becomes an underscore. What is wrong with a
// name that cannot be one is said in wrong, which is otherwise empty.
func Name(stream string) (name, wrong string) {
	switch {
	case stream == "":
		return "", "it is empty"
	case len(stream) > MaxName:
		return "", fmt.Sprintf("it has %d bytes, and at most %d fit a name on disk", len(stream), MaxName)
	case !utf8.ValidString(stream):
		return "", "it is not UTF-8"
	case stream[0] == '.':
		return "", "it begins with a dot, so what it names would be hidden or outside the folder"
	case strings.ContainsAny(stream, `/\`):
		return "", "it holds a path separator"
	case strings.ContainsFunc(stream, unicode.IsControl):
		return "", "it holds a control character"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, stream), ""
}
