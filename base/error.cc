#include "base/error.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <utility>

namespace moorage::base {
namespace {

// In the order of Code.
constexpr std::array<std::string_view, 13> kNames{
    "invalid_argument",  "not_found",       "already_exists", "conflict",
    "permission_denied", "unavailable",     "unsupported",    "resource_exhausted",
    "deadline_exceeded", "unknown_outcome", "corrupted",      "io",
    "internal"};

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
      return Code::resource_exhausted;
    case ENOENT:
    case ESRCH:  // also for a /proc file whose process has ended
      return Code::not_found;
    case EACCES:
    case EPERM:
      return Code::permission_denied;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::unsupported;
    default:
      return Code::io;
  }
}

std::string hint_of_errno(int error_number) {
  if (error_number != ENOSPC && error_number != EDQUOT) return {};
  return "the disk is full: free space on it, then try again";
}

std::string with_description(std::string_view what, int error_number) {
  // strerrordesc_np: thread-safe and needs no locale, as the static warden requires.
  const char* description = strerrordesc_np(error_number);
  std::string message = "cannot " + std::string(what);
  message += ": ";
  message += description ? std::string(description) : "error " + std::to_string(error_number);
  return message;
}

}  // namespace

std::string_view code_name(Code code) { return kNames.at(static_cast<size_t>(code)); }

Code code_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end() - 1, name);  // else the last: internal
  return static_cast<Code>(found - kNames.begin());
}

Error::Error(Code code, std::string message, std::string hint)
    : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

Error& Error::add_context(std::string_view what) {
  message_.insert(0, ": ").insert(0, what);
  return *this;
}

void throw_errno(std::string_view what, int error_number) {
  throw Error(code_of_errno(error_number), with_description(what, error_number),
              hint_of_errno(error_number));
}

void throw_allowance(std::string_view what, std::string_view setting, int error_number) {
  if (error_number != ENOSPC && error_number != EMFILE) throw_errno(what, error_number);
  throw Error(Code::resource_exhausted, "cannot " + std::string(what) + ": kernel limit reached",
              "end processes that use it up, or raise " + std::string(setting));
}

void throw_no_task(std::string_view what, int error_number) {
  throw Error(
      Code::resource_exhausted, with_description(what, error_number),
      "raise the task limit (TasksMax, pids.max), or end processes to free tasks or memory");
}

}  // namespace moorage::base
