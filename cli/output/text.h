// Text for people: formats and parses sizes, ages and durations, and escapes untrusted bytes for
// the terminal. Everything here is pure; the clock is an argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::cli {

// "0", "812", "64K", "9.4G", "412M": 1024 to a step, one decimal below ten.
std::string format_size(uint64_t bytes);
// "41s", "5m", "2h14m", "3d": two units at most, without a space.
std::string format_age(int64_t ms);
// "41 s", "2 min", "3 h", "5 days": for a sentence.
std::string format_age_long(int64_t ms);
// "1h30m", "45s": exact, in the form that settings are typed.
std::string format_seconds(int64_t seconds);
// "6 ms", "2.6 s", "3m52s": how long a step took.
std::string format_took(int64_t ms);
// "1 file", "37 files", "2 entries", "2 sandboxes".
std::string count_of(int64_t n, std::string_view noun);

// These throw Error(invalid_argument) with `what` and an example.
int64_t parse_duration_ms(std::string_view text,
                          std::string_view what);                   // 500ms, 90, 90s, 5m, 1h30m
uint64_t parse_size(std::string_view text, std::string_view what);  // 512M, 4G, 4GiB, 1048576
int64_t parse_count(std::string_view text, std::string_view what);  // an integer >= 0

// "2026-11-21T09:12:04.512Z" -> ms since 1970; nothing for other text.
std::optional<int64_t> parse_utc(std::string_view text);

// One line that is safe on a terminal: C0, C1, DEL, bidi and other invisible controls, line
// separators and invalid UTF-8 become \n, \t, \xNN or \u{NNNN}; everything else stays.
std::string printable(std::string_view text);
// Keeps newlines and tabs, for a patch on a terminal.
std::string printable_lines(std::string_view text);
bool is_utf8(std::string_view text);

// Width of printable UTF-8 in columns (wide East Asian characters count two).
size_t display_width(std::string_view text);
// Cuts to `width` columns; a cut ends with ….
std::string shorten(std::string_view text, size_t width);

// A command line as typed: quotes words where necessary.
std::string join_command(const std::vector<std::string>& argv);

std::string base64_encode(std::string_view bytes);
std::string base64_decode(std::string_view text);  // throws Error(corrupted)

}  // namespace moorage::cli
