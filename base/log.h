// One line an event: "2026-11-21T09:12:04.512Z info exec.started ws=ws_3 sb=sb_9 ex=ex_40 pid=812".
// Values may come from inside a sandbox: control characters, quotes and invalid UTF-8 are escaped
// here, so that no output can forge a line, and a value is cut at 4 KiB. A value with a space,
// quote or
// "=" stands in quotes. JSON lines by option. Built on spdlog; safe from any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace moorage::base {

enum class LogLevel { debug, info, warning, error };

struct LogOptions {
  LogLevel level = LogLevel::info;
  bool json = false;
  std::string file;  // empty: standard error
};
void set_up_log(const LogOptions& options);

struct Field {
  std::string_view key;
  std::string value;
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  template <typename T>
  requires std::is_arithmetic_v<T> Field(std::string_view k, T v)
      : key(k), value(std::to_string(v)) {}
  template <typename T>
  requires requires(const T& t) { t.str(); }
  Field(std::string_view k, const T& v) : key(k), value(v.str()) {}
};

void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields = {});

// C0, C1, DEL, double quotes, backslash, bytes that are not UTF-8 and what ends or turns around a
// line in some viewer (U+2028-202E, U+2066-2069) become \xNN or \n, \t, \"...; the rest stays.
std::string escape_for_line(std::string_view text);
// The same for a message to a person: quotes and backslashes stay, as nothing ends at them. What is
// escaped already stays as it is.
std::string escape_for_message(std::string_view text);

}  // namespace moorage::base
