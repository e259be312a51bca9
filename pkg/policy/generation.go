package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// PolicyGeneration writes a job and its generation as "<job>@<gen>".
func PolicyGeneration(job string, generation int) string {
	return job + "@" + strconv.Itoa(generation)
}

// ParsePolicyGeneration takes "<job>@<gen>" apart.
func ParsePolicyGeneration(text string) (job string, generation int, err error) {
	at := strings.LastIndexByte(text, '@')
	if at <= 0 {
		return "", 0, fmt.Errorf("%q is no policy generation such as hourly-revenue@14", text)
	}
	generation, err = strconv.Atoi(text[at+1:])
	if err != nil || generation < 1 {
		return "", 0, fmt.Errorf("%q is no policy generation such as hourly-revenue@14", text)
	}
	return text[:at], generation, nil
}
