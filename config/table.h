// The table of settings, used for the file, the environment, the checks and `config show`. A
// default-constructed Settings has the defaults.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace moorage::config {

struct Setting {
  std::string_view name;  // "group.key"
  std::string_view unit;  // "bytes", "s", or empty
  bool is_list = false;
  std::function<void(Settings&, const std::vector<std::string>&)> parse;  // throws invalid_argument
  std::function<std::string(const Settings&)> print;
  std::string_view help;
};

const std::vector<Setting>& settings_table();
const Setting* find_setting(std::string_view name);  // null: not found
std::vector<std::string> setting_groups();
std::string variable_of(const Setting& setting);  // MOORAGE_GROUP_KEY

}  // namespace moorage::config
