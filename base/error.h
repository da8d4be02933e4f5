// The one exception type of the project. A code exists only because some caller acts on it;
// everything else is told by the message. Context is added on the way up with `add_context`.
// `hint` is what the user should do next; it may be empty, the message may not.
// Absence is std::optional and a command's exit status is data: neither is an Error.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace moorage::base {

enum class Code {
  invalid_argument,    // the request is wrong and stays wrong
  not_found,           // no such workspace, exec, file, repository, ref
  already_exists,      // name taken, or idempotency key used for a different request
  conflict,            // right request, wrong moment: busy, wrong state, lock held
  permission_denied,   // caller may not
  unavailable,         // engine, upstream or daemon cannot be reached; a retry may help
  unsupported,         // this host, backend or library cannot do it; a retry will not help
  resource_exhausted,  // disk, memory, ids, a configured limit
  deadline_exceeded,   // took longer than allowed; nothing is known to have happened after it
  unknown_outcome,     // sent, but no answer: reconcile, never retry blindly
  corrupted,           // data on disk is not what was written
  io,                  // any other failing system call
  internal,            // a bug of ours
};

// "not_found" and so on: the spelling on the wire.
std::string_view code_name(Code code);
// internal for an unknown name: a newer daemon may know more codes than this client.
Code code_from_name(std::string_view name);

class Error : public std::exception {
 public:
  Error(Code code, std::string message, std::string hint = {});
  const char* what() const noexcept override { return message_.c_str(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // Puts "what: " in front of the message. Returns *this for `throw`.
  Error& add_context(std::string_view what);

 private:
  Code code_;
  std::string message_;
  std::string hint_;
};

// Throws Error from errno: "WHAT: strerror". ENOSPC, EDQUOT, ENOMEM, EMFILE -> resource_exhausted,
// ENOENT -> not_found, EACCES, EPERM -> permission_denied, ENOSYS, EOPNOTSUPP -> unsupported, else
// io. A full disk gets a hint.
[[noreturn]] void throw_errno(std::string_view what, int error_number);
[[noreturn]] void throw_errno(std::string_view what);
// For a process or thread that cannot be made: resource_exhausted, and what to do about it.
[[noreturn]] void throw_no_task(std::string_view what, int error_number);

// For system calls that answer -1: returns the value, or throws.
template <typename T>
T check(T result, std::string_view what) {
  if (result < 0) throw_errno(what);
  return result;
}

}  // namespace moorage::base
