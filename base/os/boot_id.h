#pragma once

#include <string>

namespace moorage::base {

const std::string& boot_id();  // /proc/sys/kernel/random/boot_id

}  // namespace moorage::base
