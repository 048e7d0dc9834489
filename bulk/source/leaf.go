package source

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// leafKind is how the values of a column are written as JSON.
type leafKind struct {
	kind parquet.Kind
	// text says that values are JSON strings.
	text     bool
	unsigned bool
	decimal  bool
	scale    int
	unit     time.Duration // of an instant or a time of day
	instant  bool
	utc      bool
	date     bool
	uuid     bool
	json     bool
}

func newLeafKind(t parquet.Type) (*leafKind, error) {
	k := &leafKind{kind: t.Kind()}
	if k.kind == parquet.Int96 {
		return nil, errors.New("its type is INT96, which is ambiguous: write it as a timestamp")
	}
	bytes := k.kind == parquet.ByteArray || k.kind == parquet.FixedLenByteArray
	if logical := t.LogicalType(); logical != nil {
		switch v := logical.Value.(type) {
		case *format.StringType, *format.EnumType:
			k.text = bytes
		case *format.JsonType:
			k.json = bytes
		case *format.UUIDType:
			k.uuid, k.text = bytes, bytes
		case *format.DecimalType:
			k.decimal, k.scale, k.text = true, int(v.Scale), true
			if k.scale < 0 || k.scale > 1000 {
				return nil, fmt.Errorf("its decimal scale is %d", k.scale)
			}
		case *format.DateType:
			k.date, k.text = k.kind == parquet.Int32, k.kind == parquet.Int32
		case *format.TimestampType:
			k.instant, k.utc, k.text = true, v.IsAdjustedToUTC, true
			k.unit = unit(v.Unit)
		case *format.TimeType:
			k.text = true
			k.unit = unit(v.Unit)
		case *format.IntType:
			k.unsigned = !v.IsSigned
		}
	}
	if k.unit < 0 || k.unit > 0 && bytes {
		return nil, errors.New("its unit of time is unknown")
	}
	k.text = k.text || bytes && !k.json
	return k, nil
}

func unit(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return -1
	}
	return u.Value.Duration()
}

// append appends a value.
func (k *leafKind) append(to []byte, v parquet.Value) ([]byte, error) {
	if v.IsNull() {
		return append(to, "null"...), nil
	}
	if v.Kind() != k.kind {
		return to, errLevels
	}
	switch k.kind {
	case parquet.Boolean:
		return strconv.AppendBool(to, v.Boolean()), nil
	case parquet.Int32:
		if k.unsigned {
			return strconv.AppendUint(to, uint64(v.Uint32()), 10), nil
		}
		return k.integer(to, int64(v.Int32())), nil
	case parquet.Int64:
		if k.unsigned {
			return strconv.AppendUint(to, v.Uint64(), 10), nil
		}
		return k.integer(to, v.Int64()), nil
	case parquet.Float:
		return real(to, float64(v.Float()), 32)
	case parquet.Double:
		return real(to, v.Double(), 64)
	case parquet.Int96, parquet.ByteArray, parquet.FixedLenByteArray:
	}
	return k.bytes(to, v.ByteArray())
}

func (k *leafKind) integer(to []byte, n int64) []byte {
	switch {
	case k.decimal:
		return k.appendDecimal(to, big.NewInt(n))
	case k.date:
		return time.Unix(n*86400, 0).UTC().AppendFormat(to, `"2006-01-02"`)
	case k.unit > 0:
		perSecond := int64(time.Second / k.unit)
		at := time.Unix(n/perSecond, n%perSecond*int64(k.unit)).UTC()
		switch {
		case !k.instant:
			return at.AppendFormat(to, `"15:04:05.999999999"`)
		case k.utc:
			return at.AppendFormat(to, `"2006-01-02T15:04:05.999999999Z"`)
		}
		return at.AppendFormat(to, `"2006-01-02T15:04:05.999999999"`)
	}
	return strconv.AppendInt(to, n, 10)
}

func real(to []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return to, errors.New("it holds a number that JSON does not have (NaN or infinity)")
	}
	return strconv.AppendFloat(to, f, 'g', -1, bits), nil
}

func (k *leafKind) bytes(to, b []byte) ([]byte, error) {
	switch {
	case k.decimal:
		n := new(big.Int).SetBytes(b)
		if len(b) > 0 && b[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
		}
		return k.appendDecimal(to, n), nil
	case k.uuid && len(b) == 16:
		return fmt.Appendf(to, `"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
	case k.json:
		if !utf8.Valid(b) || !json.Valid(b) {
			return to, errors.New("a JSON column holds something else")
		}
		return appendOneLine(to, b), nil
	case utf8.Valid(b):
		return appendString(to, b), nil
	}
	// Bytes that are not text, as JSON commonly has them.
	return append(base64.StdEncoding.AppendEncode(append(to, '"'), b), '"'), nil
}

// appendDecimal writes a decimal as text, so that no digit is lost on the way.
func (k *leafKind) appendDecimal(to []byte, n *big.Int) []byte {
	to = append(to, '"')
	if n.Sign() < 0 {
		to = append(to, '-')
	}
	digits := new(big.Int).Abs(n).Append(nil, 10)
	for len(digits) <= k.scale {
		digits = append([]byte{'0'}, digits...)
	}
	to = append(to, digits[:len(digits)-k.scale]...)
	if k.scale > 0 {
		to = append(append(to, '.'), digits[len(digits)-k.scale:]...)
	}
	return append(to, '"')
}
