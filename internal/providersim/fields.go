package providersim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object whose values are left as they stand.
type object = map[string]json.RawMessage

// members answers the names that a JSON Pointer goes through.
func members(pointer string) ([]string, error) {
	names := strings.Split(pointer, "/")
	if len(names) < 2 || names[0] != "" {
		return nil, fmt.Errorf("%q is no JSON Pointer to a member, such as /amount", pointer)
	}
	for i, name := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names[1:], nil
}

// get answers the value at a pointer; nil where there is none.
func get(from object, pointer string) json.RawMessage {
	names, err := members(pointer)
	if err != nil {
		return nil
	}
	for _, name := range names[:len(names)-1] {
		var inner object
		if json.Unmarshal(from[name], &inner) != nil {
			return nil
		}
		from = inner
	}
	return from[names[len(names)-1]]
}

// put sets the value at a pointer, with the objects on the way.
func put(into map[string]any, pointer string, value json.RawMessage) {
	names, err := members(pointer)
	if err != nil || value == nil {
		return
	}
	for _, name := range names[:len(names)-1] {
		inner, ok := into[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			into[name] = inner
		}
		into = inner
	}
	into[names[len(names)-1]] = value
}
