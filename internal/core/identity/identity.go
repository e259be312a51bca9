// Package identity builds the ids of Tidemark (design: "Identities").
package identity

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// H answers lowercase hex SHA-256 of tag and every field written as "<byte length>:<bytes>", joined by "|".
func H(tag string, fields ...string) string { panic("contract only") }

// LogicalWindow answers the id of a business window: no job, no policy.
func LogicalWindow(stream, key string, start, end envelope.EventTime) string { panic("contract only") }

// Projection answers the id of a window's result under one policy generation.
func Projection(logicalWindowID, policyGeneration string) string { panic("contract only") }

// Effect answers the key of an effect.
func Effect(effectType, logicalWindowID, businessSubject string) string { panic("contract only") }

// EventHash answers the first 16 bytes of SHA-256("<len>:<source>|<len>:<id>"): what an
// idDigest sums and what the id index is keyed by.
func EventHash(source, id string) [16]byte { panic("contract only") }

// Sum128 adds two numbers mod 2^128, big-endian.
func Sum128(a, b [16]byte) [16]byte { panic("contract only") }

// Sub128 subtracts b from a mod 2^128, big-endian.
func Sub128(a, b [16]byte) [16]byte { panic("contract only") }
