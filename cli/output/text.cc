#include "cli/output/text.h"

#include <charconv>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/size_text.h"

namespace moorage::cli {
namespace {

constexpr int64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;

[[noreturn]] void refuse_range(std::string_view what, std::string_view text) {
  throw Error(Code::invalid_argument,
              std::string(what) + ": '" + std::string(text) + "' is out of range");
}

[[noreturn]] void refuse(std::string_view what, std::string_view text, std::string_view examples) {
  throw Error(Code::invalid_argument,
              std::string(what) + ": '" + std::string(text) + "' is not valid",
              "write it like " + std::string(examples));
}

// Takes a decimal number off the front of text.
std::optional<double> take_number(std::string_view& text) {
  if (text.find_first_of("0123456789.") != 0) return std::nullopt;  // nor "nan" or "inf"
  double number = 0;
  auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failure != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

std::optional<int64_t> take_unit(std::string_view& text) {
  static constexpr struct {
    std::string_view name;
    int64_t ms;
  } kUnits[] = {{"ms", 1},      {"s", kSecond}, {"min", kMinute},
                {"m", kMinute}, {"h", kHour},   {"d", kDay}};
  for (const auto& unit : kUnits) {
    if (!text.starts_with(unit.name)) continue;
    text.remove_prefix(unit.name.size());
    return unit.ms;
  }
  return std::nullopt;
}

}  // namespace

std::string format_size(uint64_t bytes) { return base::size_text(bytes); }

std::string format_age(int64_t ms) {
  if (ms < 0) ms = 0;
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (ms < kMinute) return number(ms / kSecond) + "s";
  if (ms < kHour) return number(ms / kMinute) + "m";
  const int64_t minutes = ms % kHour / kMinute;
  if (ms < 10 * kHour && minutes > 0) return number(ms / kHour) + "h" + number(minutes) + "m";
  if (ms < 2 * kDay) return number(ms / kHour) + "h";
  return number(ms / kDay) + "d";
}

std::string format_age_long(int64_t ms) {
  if (ms < 0) ms = 0;
  if (ms < kMinute) return std::to_string(ms / kSecond) + " s";
  if (ms < kHour) return std::to_string(ms / kMinute) + " min";
  if (ms < 2 * kDay) return std::to_string(ms / kHour) + " h";
  return std::to_string(ms / kDay) + " days";
}

std::string format_seconds(int64_t seconds) {
  std::string text;
  const auto add = [&](int64_t unit, char letter) {
    if (seconds >= unit) text += std::to_string(seconds / unit) + letter;
    seconds %= unit;
  };
  add(86'400, 'd');
  add(3600, 'h');
  add(60, 'm');
  if (seconds > 0 || text.empty()) text += std::to_string(seconds) + "s";
  return text;
}

std::string format_took(int64_t ms) {
  if (ms < kSecond) return std::to_string(ms) + " ms";
  char text[32];
  if (ms < kMinute) {
    const bool whole = ms % kSecond == 0;
    std::snprintf(text, sizeof text, whole ? "%.0f s" : "%.1f s", static_cast<double>(ms) / 1000);
    return text;
  }
  std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(ms / kMinute),
                static_cast<long long>(ms % kMinute / kSecond));
  return text;
}

std::string count_of(int64_t n, std::string_view noun) {
  return base::count_text(static_cast<uint64_t>(n), noun);
}

int64_t parse_duration_ms(std::string_view text, std::string_view what) {
  constexpr std::string_view kExamples = "500ms, 90s, 5m or 1h30m";
  std::string_view rest = text;
  double total = 0;
  if (rest.empty()) refuse(what, text, kExamples);
  while (!rest.empty()) {
    const auto number = take_number(rest);
    if (!number) refuse(what, text, kExamples);
    // Only a single bare number means seconds: "1h30" is ambiguous.
    const bool bare = rest.empty() && total == 0;
    const auto unit = bare ? std::optional<int64_t>(kSecond) : take_unit(rest);
    if (!unit) refuse(what, text, kExamples);
    total += *number * static_cast<double>(*unit);
  }
  if (total < 1 || total > 1e13) refuse_range(what, text);
  return static_cast<int64_t>(total);
}

uint64_t parse_size(std::string_view text, std::string_view what) {
  constexpr uint64_t kMost = 1'000'000'000'000'000'000;
  const auto bytes = base::parse_size(text);
  if (!bytes) refuse(what, text, "512M, 4G or 1.5G");
  if (*bytes == 0 || *bytes > kMost) refuse_range(what, text);
  return *bytes;
}

int64_t parse_count(std::string_view text, std::string_view what) {
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  if (parsed.ec == std::errc() && parsed.ptr == end && count >= 0) return count;
  throw Error(Code::invalid_argument,
              std::string(what) + ": '" + std::string(text) + "' is not an integer of at least 0");
}

std::optional<int64_t> parse_utc(std::string_view text) {
  std::tm parts{};
  int ms = 0, used = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &used) != 6) {
    return std::nullopt;
  }
  if (copy[static_cast<size_t>(used)] == '.') {
    ms = std::atoi((copy.substr(static_cast<size_t>(used) + 1, 3) + "000").substr(0, 3).c_str());
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return static_cast<int64_t>(timegm(&parts)) * 1000 + ms;
}

}  // namespace moorage::cli
