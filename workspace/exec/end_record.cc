#include "workspace/exec/end_record.h"

#include <boost/json.hpp>
#include <charconv>

namespace moorage::workspace {
namespace {

namespace json = boost::json;

int64_t number(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (value == nullptr) return 0;
  if (const auto* text =
          value->if_string()) {  // 64-bit numbers travel as strings, as in proto3 JSON
    int64_t parsed = 0;
    std::from_chars(text->data(), text->data() + text->size(), parsed);
    return parsed > 0 ? parsed : 0;
  }
  if (const auto* integer = value->if_int64()) return *integer > 0 ? *integer : 0;
  return 0;
}

// Only these words are accepted from the warden; we derive the others from outside the sandbox.
std::optional<state_db::ExecCategory> start_failure(std::string_view word) {
  using state_db::ExecCategory;
  const auto category = state_db::category_from_name(word);
  const bool known = category == ExecCategory::not_found ||
                     category == ExecCategory::not_executable ||
                     category == ExecCategory::not_started;
  return known ? category : std::nullopt;
}

state_db::ExecOutcome damaged() {
  state_db::ExecOutcome outcome;
  outcome.state = state_db::ExecState::interrupted;
  outcome.error = "the record of the command's end is damaged";
  return outcome;
}

}  // namespace

state_db::ExecOutcome parse_exec_end(const std::string& payload) {
  boost::system::error_code parse_error;
  const json::value value = json::parse(payload, parse_error);
  const auto* object = parse_error ? nullptr : value.if_object();
  const auto* kind = object == nullptr ? nullptr : object->if_contains("kind");
  if (kind == nullptr || !kind->is_string()) return damaged();

  state_db::ExecOutcome outcome;
  if (kind->as_string() == "exited") {
    outcome.state = state_db::ExecState::exited;
    outcome.exit_code = static_cast<int>(number(*object, "code") & 0xff);
  } else if (kind->as_string() == "signalled") {
    outcome.state = state_db::ExecState::signalled;
    outcome.signal = static_cast<int>(number(*object, "signal") & 0x7f);
  } else if (kind->as_string() == "timed_out") {
    outcome.state = state_db::ExecState::timed_out;
  } else {
    return damaged();
  }
  if (const auto* error = object->if_contains("error"); error != nullptr && error->is_string()) {
    outcome.error = std::string(error->as_string()).substr(0, 4096);
  }
  if (const auto* word = object->if_contains("failure"); word != nullptr && word->is_string()) {
    outcome.category = start_failure(word->as_string());
  }
  outcome.omitted_bytes = static_cast<uint64_t>(number(*object, "omitted_bytes"));
  outcome.user_ms = number(*object, "user_ms");
  outcome.system_ms = number(*object, "system_ms");
  outcome.max_rss_bytes = static_cast<uint64_t>(number(*object, "max_rss_bytes"));
  return outcome;
}

}  // namespace moorage::workspace
