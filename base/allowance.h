// Errors of calls that use up a kernel allowance and write no disk. There, ENOSPC and EMFILE mean
// that the allowance is used up, not that a disk is full.
#pragma once

#include <cerrno>
#include <string_view>

namespace moorage::base {

// `setting` names the setting an administrator can raise. Any other errno: as throw_errno.
[[noreturn]] void throw_allowance(std::string_view what, std::string_view setting,
                                  int error_number);

// For system calls that return -1 on error: returns the value, or throws.
template <typename T>
T check_allowance(T result, std::string_view what, std::string_view setting) {
  if (result < 0) throw_allowance(what, setting, errno);
  return result;
}

}  // namespace moorage::base
