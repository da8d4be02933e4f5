#include "warden/signals.h"

#include <signal.h>
#include <string.h>

#include <charconv>

namespace moorage::warden {

std::optional<int> signal_number(std::string_view name) {
  int number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) {
    if (number < 1 || number > SIGRTMAX) return std::nullopt;
    return number;
  }
  if (name.starts_with("SIGNAL_")) name.remove_prefix(7);
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    if (known && name == known) return signal;
  }
  return std::nullopt;
}

}  // namespace moorage::warden
