// The one exception type of the project. A code exists only because some caller acts on it; the
// message says everything else. `add_context` adds context on the way up. `hint` says what the user
// should do next; it may be empty, the message may not. Absence is std::optional and a command's
// exit status is data: neither is an Error.
#pragma once

#include <cerrno>
#include <exception>
#include <string>
#include <string_view>

namespace moorage::base {

enum class Code {
  invalid_argument,    // the request is wrong and stays wrong
  not_found,           // no such workspace, exec, file, repository, ref
  already_exists,      // name taken, or idempotency key used for a different request
  conflict,            // right request, wrong moment: busy, wrong state, lock held
  permission_denied,   // the caller is not allowed to
  unavailable,         // engine, upstream or daemon cannot be reached; a retry may help
  unsupported,         // this host, backend or library cannot do it; a retry will not help
  resource_exhausted,  // disk, memory, ids, a configured limit
  deadline_exceeded,   // took too long; its outcome after that is not known
  unknown_outcome,     // sent, but no answer: reconcile, never retry blindly
  corrupted,           // data on disk differs from what was written
  io,                  // any other failing system call
  internal,            // a bug in Moorage
};

// The spelling on the wire: "not_found" and so on.
std::string_view code_name(Code code);
// Returns internal for an unknown name: a newer daemon may know more codes than this client.
Code code_from_name(std::string_view name);

class Error : public std::exception {
 public:
  Error(Code code, std::string message, std::string hint = {});
  const char* what() const noexcept override { return message_.c_str(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // Prepends "what: " to the message. Returns *this for `throw`.
  Error& add_context(std::string_view what);

 private:
  Code code_;
  std::string message_;
  std::string hint_;
};

// Throws "cannot WHAT: strerror", so WHAT begins with a verb. ENOSPC, EDQUOT, ENOMEM, EMFILE ->
// resource_exhausted, ENOENT -> not_found, EACCES, EPERM -> permission_denied, ENOSYS, EOPNOTSUPP
// -> unsupported, else io. A full disk gets a hint.
[[noreturn]] void throw_errno(std::string_view what, int error_number = errno);
// For calls that use up a kernel allowance and write no disk: there, ENOSPC and EMFILE mean that
// the allowance is used up. `setting` names the one an administrator can raise.
[[noreturn]] void throw_allowance(std::string_view what, std::string_view setting,
                                  int error_number = errno);
// For a process or thread that cannot be created: resource_exhausted, with a hint.
[[noreturn]] void throw_no_task(std::string_view what, int error_number);

// For system calls that return -1 on error: return the value, or throw.
template <typename T>
T check(T result, std::string_view what) {
  if (result < 0) throw_errno(what);
  return result;
}
template <typename T>
T check_allowance(T result, std::string_view what, std::string_view setting) {
  if (result < 0) throw_allowance(what, setting);
  return result;
}

}  // namespace moorage::base

namespace moorage {
using base::Code;
using base::Error;
}  // namespace moorage
