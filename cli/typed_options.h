// The daemon's refusals name the fields of its API. A person typed options: name those instead.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace moorage::cli {

// `words` as typed: a field is renamed only when its option is among them.
Error with_typed_options(const Error& error, const std::vector<std::string>& words);

}  // namespace moorage::cli
