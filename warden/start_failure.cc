// The texts of spawn.h's explain_failure.
#include <errno.h>
#include <string.h>

#include <array>

#include "warden/spawn.h"

namespace moorage::warden {
namespace {

StartFailure explain_execute(const Command& command, int error_number) {
  const std::string& name = command.argv[0];
  const bool has_path = name.find('/') != std::string::npos;
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      if (has_path)
        return {127, name + ": no such file; check the path, or build it first", "not_found"};
      return {127,
              name + ": command not found in " + path_of(command, "the default PATH") +
                  "; check the spelling, install it, or give its full path",
              "not_found"};
    case EACCES:
      return {126,
              name +
                  ": permission denied; make it executable (chmod +x) or run it through "
                  "its interpreter",
              "not_executable"};
    case ENOEXEC:
      return {126,
              name + ": not a program for this machine; a script needs a first line like #!/bin/sh",
              "not_executable"};
    case E2BIG:
      return {126, name +
                       ": the arguments and environment exceed Linux's limits, 128 KiB each and a "
                       "quarter of the stack's limit (ulimit -s) together; pass them in a file or "
                       "on standard input"};
    case ETXTBSY:
      return {126, name + ": the file is open for writing; try again when it is closed",
              "not_executable"};
    default:
      return {126, name + ": " + ::strerror(error_number)};
  }
}

// In the order of StartStep; the steps of explain_failure() have none.
constexpr std::array kSteps{"start",
                            "create a process",
                            "join its control group",
                            "create a session",
                            "set up the streams",
                            "take the terminal",
                            "set the limits",
                            "set the groups",
                            "switch to the user"};

std::string step_name(StartStep step) {
  const auto at = static_cast<size_t>(step);
  return at < kSteps.size() ? kSteps.at(at) : "start";
}

}  // namespace

std::string path_of(const Command& command, const char* otherwise) {
  for (const std::string& variable : command.environment) {
    if (variable.starts_with("PATH=")) return variable.substr(5);
  }
  return otherwise;
}

StartFailure explain_failure(const Command& command, const StatusRecord& record) {
  if (record.step == StartStep::execute) return explain_execute(command, record.value);
  if (record.step == StartStep::interpreter) {
    return {126,
            command.argv[0] +
                ": its interpreter is missing; check its first line (#!) or "
                "`ldd`, and install what is missing",
            "not_executable"};
  }
  if (record.step == StartStep::directory) {
    return {126, "the directory " + command.directory + " cannot be entered: " +
                     ::strerror(record.value) + "; create it or choose another"};
  }
  std::string reason = record.value ? ::strerror(record.value) : "the new process was killed";
  return {126, std::string("the command could not ") + step_name(record.step) + ": " + reason};
}

}  // namespace moorage::warden
