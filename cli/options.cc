#include "cli/options.h"

#include <CLI/App.hpp>

namespace moorage::cli {

void Options::flag(const OptionText& text, bool& to) { app_.add_flag(text.names, to, text.help); }

void Options::value(const OptionText& text, std::string& to) {
  app_.add_option(text.names, to, text.help)->type_name(text.placeholder);
}

void Options::values(const OptionText& text, std::vector<std::string>& to) {
  // One value an option: a vector would otherwise swallow the arguments that follow.
  app_.add_option(text.names, to, text.help)
      ->type_name(text.placeholder)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Options::argument(const OptionText& text, std::string& to) {
  app_.add_option(text.names, to, text.help)->type_name("")->required();
}

void Options::optional_argument(const OptionText& text, std::string& to) {
  app_.add_option(text.names, to, text.help)->type_name("");
}

void Options::arguments(const OptionText& text, std::vector<std::string>& to) {
  app_.add_option(text.names, to, text.help)->type_name("");
}

void Options::required_arguments(const OptionText& text, std::vector<std::string>& to) {
  app_.add_option(text.names, to, text.help)->type_name("")->required();
}

}  // namespace moorage::cli
