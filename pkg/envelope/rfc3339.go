package envelope

// ParseRFC3339 reads a time as RFC 3339 writes it (upper-case T and Z, or any offset;
// no leap second, no 24:00) and answers Unix microseconds. fine is true for a time that
// is right but finer than a microsecond; zeros beyond the sixth digit are not finer.
func ParseRFC3339[T string | []byte](text T) (t EventTime, fine, ok bool) {
	if len(text) < len("2026-11-30T10:00:00Z") {
		return 0, false, false
	}
	year, month, day := number2(text, 0)*100+number2(text, 2), number2(text, 5), number2(text, 8)
	hour, minute, second := number2(text, 11), number2(text, 14), number2(text, 17)
	if text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' ||
		number2(text, 0) < 0 || number2(text, 2) < 0 || month < 1 || month > 12 ||
		day < 1 || day > daysIn(year, month) || hour < 0 || hour > 23 ||
		minute < 0 || minute > 59 || second < 0 || second > 59 {
		return 0, false, false
	}
	i, micros := 19, int64(0)
	if text[i] == '.' {
		i++
		from := i
		for unit := int64(100_000); i < len(text) && text[i]-'0' <= 9; i++ {
			micros += int64(text[i]-'0') * unit
			fine = fine || unit == 0 && text[i] != '0'
			unit /= 10
		}
		if i == from {
			return 0, false, false
		}
	}
	offset, ok := zoneSeconds(text[i:])
	if !ok {
		return 0, false, false
	}
	seconds := daysFromCivil(year, month, day)*86400 + int64(hour*3600+minute*60+second) - offset
	return EventTime(seconds*1_000_000 + micros), fine, true
}

// zoneSeconds reads "Z", "+02:00" or "-11:30".
func zoneSeconds[T string | []byte](text T) (int64, bool) {
	if len(text) == 1 && text[0] == 'Z' {
		return 0, true
	}
	if len(text) != 6 || text[3] != ':' || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	hour, minute := number2(text, 1), number2(text, 4)
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return 0, false
	}
	seconds := int64(hour*3600 + minute*60)
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// number2 answers the two digits at i as a number, or a negative one if they are none.
func number2[T string | []byte](text T, i int) int {
	high, low := text[i]-'0', text[i+1]-'0'
	if high > 9 || low > 9 {
		return -100_000
	}
	return int(high)*10 + int(low)
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysFromCivil answers the days from 1970-01-01 to a date of the Gregorian calendar.
// The year is counted from March, so that the leap day is the last of its year.
func daysFromCivil(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	yearOfEra := year - era*400
	dayOfYear := (153*(month-3)+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return int64(era)*146097 + int64(dayOfEra) - 719468
}
