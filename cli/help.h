// The pages of `moorage help`, made from the table of commands: the first page, the commands of a
// topic, the commands of a group. The help of one command comes from its options (command_line.h).
#pragma once

#include <string>

#include "cli/commands.h"

namespace moorage::cli {

std::string first_page();  // fits a screen of 24 lines and 80 columns, with room for the prompt
std::string topic_page(const Topic& topic);
std::string group_page(const std::string& group);  // "repo"

}  // namespace moorage::cli
