#include "base/log.h"

#include <cstdio>
#include <memory>
#include <mutex>

// Both compiled in here, so the layer needs no shared library and the static warden can link it.
#define FMT_HEADER_ONLY
#define SPDLOG_FMT_EXTERNAL
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/clock.h"
#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kMaxValueBytes = 4096;

struct LevelNames {
  std::string_view name;
  spdlog::level::level_enum level;
};

const LevelNames& names_of(LogLevel level) {
  static constexpr LevelNames kNames[] = {{"debug", spdlog::level::debug},
                                          {"info", spdlog::level::info},
                                          {"warning", spdlog::level::warn},
                                          {"error", spdlog::level::err}};
  return kNames[static_cast<size_t>(level)];
}

struct Log {
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
};

std::shared_ptr<const Log> make_log(const LogOptions& options) {
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(Code::io, "cannot open the log " + options.file + ": " + error.what());
  }
  auto logger = std::make_shared<spdlog::logger>("moorage", sink);
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v"));
  logger->set_level(names_of(options.level).level);
  logger->flush_on(spdlog::level::trace);  // kill -9 would lose a buffered line
  return std::make_shared<const Log>(Log{std::move(logger), options.json});
}

std::mutex current_mutex;
// Never destroyed: threads and destructors log until the very end of the process.
std::shared_ptr<const Log>& current_slot() {
  static auto& slot = *new std::shared_ptr<const Log>;
  return slot;
}

std::shared_ptr<const Log> current_log() {
  std::lock_guard guard(current_mutex);
  auto& slot = current_slot();
  if (!slot) slot = make_log({});
  return slot;
}

std::string shortened(const std::string& value) {
  if (value.size() <= kMaxValueBytes) return value;
  return value.substr(0, kMaxValueBytes) + "...";
}

// A bare value with a space or "=" could pass for more fields.
std::string text_value(const std::string& value) {
  std::string escaped = escape_for_line(shortened(value));
  bool bare = !escaped.empty() && escaped.find_first_of(" =\"\\") == std::string::npos;
  return bare ? escaped : '"' + escaped + '"';
}

// JSON has no \x, so such an escape stays visible as text: "\\xff".
std::string json_value(std::string_view value) {
  std::string escaped = escape_for_line(shortened(std::string(value)));
  for (size_t at = escaped.find('\\'); at != std::string::npos; at = escaped.find('\\', at + 2)) {
    if (escaped[at + 1] == 'x') escaped.insert(at++, 1, '\\');
  }
  return '"' + escaped + '"';
}

std::string text_line(std::string_view level, std::string_view event,
                      std::initializer_list<Field> fields) {
  std::string line = format_utc(system_clock().wall_ms());
  line.append(" ").append(level).append(" ").append(escape_for_line(event));
  for (const Field& field : fields) {
    line.append(" ").append(field.key).append("=").append(text_value(field.value));
  }
  return line;
}

std::string json_line(std::string_view level, std::string_view event,
                      std::initializer_list<Field> fields) {
  std::string line = "{\"at\":\"" + format_utc(system_clock().wall_ms()) + "\",\"level\":\"";
  line.append(level).append("\",\"event\":").append(json_value(event));
  for (const Field& field : fields) {
    line.append(",").append(json_value(field.key)).append(":").append(json_value(field.value));
  }
  return line + "}";
}

}  // namespace

void set_up_log(const LogOptions& options) {
  auto made = make_log(options);
  std::lock_guard guard(current_mutex);
  current_slot() = std::move(made);
}

void log(LogLevel level, std::string_view event, std::initializer_list<Field> fields) {
  const LevelNames& names = names_of(level);
  auto current = current_log();
  if (!current->logger->should_log(names.level)) return;
  current->logger->log(names.level, current->json ? json_line(names.name, event, fields)
                                                  : text_line(names.name, event, fields));
}

}  // namespace moorage::base
