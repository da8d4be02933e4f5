// GET /metrics, with envd's field names.
#pragma once

#include <cstddef>
#include <string>

namespace moorage::warden {

std::string metrics_json(size_t running_execs);

}  // namespace moorage::warden
