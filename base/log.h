// One line per event: "2026-11-21T09:12:04.512Z info exec.started ws=ws_3 sb=sb_9 ex=ex_40
// pid=812". Values may come from inside a sandbox: this layer escapes control characters, quotes
// and invalid UTF-8, so that no output can forge a line, and cuts values at 4 KiB. A value with a
// space, quote or "=" is quoted. JSON lines are optional. Built on spdlog; safe from any thread.
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

// Escapes C0, C1, DEL, double quotes, backslashes, invalid UTF-8 and characters that break or
// reverse a line (U+2028-202E, U+2066-2069) as \xNN or \n, \t, \"...; keeps the rest.
std::string escape_for_line(std::string_view text);
// The same for a message to a person: keeps quotes and backslashes, since they delimit nothing
// there. Text that is already escaped does not change.
std::string escape_for_message(std::string_view text);

}  // namespace moorage::base
