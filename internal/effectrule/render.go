package effectrule

import (
	"fmt"
	"slices"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// renderable tells whether a payload can hold values of a type: text, whole numbers,
// decimals (as text), times (as text), true and false, and lists and maps of these.
func renderable(t *cel.Type) bool {
	switch t.Kind() {
	case types.StringKind, types.IntKind, types.BoolKind, types.TimestampKind:
		return true
	case types.DynKind:
		return true // what is inside was checked value by value
	case types.ListKind:
		return renderable(t.Parameters()[0])
	case types.MapKind:
		return t.Parameters()[0].Kind() == types.StringKind && renderable(t.Parameters()[1])
	}
	return t.TypeName() == decimalType.TypeName()
}

// appendValue appends a value as canonical JSON: members sorted bytewise, no spaces,
// decimals and times as text.
func appendValue(dst []byte, v ref.Val) ([]byte, error) {
	switch v := v.(type) {
	case types.String:
		return envelope.AppendJSONString(dst, string(v)), nil
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(v)), nil
	case celDecimal:
		return envelope.AppendJSONString(dst, v.String()), nil
	case types.Timestamp:
		return envelope.AppendJSONString(dst, envelope.EventTime(v.UnixMicro()).String()), nil
	case traits.Lister:
		return appendList(dst, v)
	case traits.Mapper:
		return appendMap(dst, v)
	}
	return nil, fmt.Errorf("a payload holds no %s", v.Type().TypeName())
}

func appendList(dst []byte, list traits.Lister) ([]byte, error) {
	dst = append(dst, '[')
	for i, it := 0, list.Iterator(); it.HasNext() == types.True; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, it.Next()); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, m traits.Mapper) ([]byte, error) {
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok {
			return nil, fmt.Errorf("a map of a payload has text for names")
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(envelope.AppendJSONString(dst, name), ':')
		var err error
		if dst, err = appendValue(dst, m.Get(types.String(name))); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// plainText answers the text that evidence repeats, of a scalar.
func plainText(v ref.Val) (string, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Int:
		return strconv.FormatInt(int64(v), 10), true
	case celDecimal:
		return v.String(), true
	case types.Timestamp:
		return envelope.EventTime(v.UnixMicro()).String(), true
	}
	return "", false
}
