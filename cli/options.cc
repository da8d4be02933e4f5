#include "cli/options.h"

#include <CLI/App.hpp>
#include <algorithm>

namespace moorage::cli {
namespace {

constexpr const char* kHidden = "";  // the group of options that the help leaves out

// An empty value is a mistake, such as an unset variable. Treating it as a missing option would do
// something the user did not ask for.
void refuse_empty(CLI::Option* option, const std::string& names) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto check = [name](const std::string& value) -> std::string {
    if (!value.empty()) return {};
    throw Error(Code::invalid_argument,
                name + (name.starts_with('-') ? " needs a value" : " is empty"));
  };
  option->check(check, "");
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

template <typename To>
CLI::Option* add(CLI::App& app, const ToldOption& told, To& to) {
  return app.add_option(told.text.names, to, told.text.help)
      ->type_name(told.is_argument ? "" : told.text.placeholder)
      ->required(told.required);
}

}  // namespace

void Options::flag(const OptionText& text, bool& to) {
  told_.push_back({.text = text});
  app_.add_flag(text.names, to, text.help);
  if (!text.also.empty()) app_.add_flag(text.also, to)->group(kHidden);
}

void Options::value(const OptionText& text, std::string& to) {
  told_.push_back({.text = text, .takes_value = true});
  refuse_empty(add(app_, told_.back(), to), text.names);
  if (!text.also.empty()) refuse_empty(app_.add_option(text.also, to)->group(kHidden), text.also);
}

void Options::values(const OptionText& text, std::vector<std::string>& to) {
  told_.push_back({.text = text, .takes_value = true, .repeats = true});
  // One value for each option: a vector would swallow the arguments that follow.
  add(app_, told_.back(), to)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Options::argument(const OptionText& text, std::string& to, bool required) {
  told_.push_back({.text = text, .is_argument = true, .required = required});
  refuse_empty(add(app_, told_.back(), to), text.names);
}

void Options::arguments(const OptionText& text, std::vector<std::string>& to, bool required) {
  told_.push_back({.text = text, .is_argument = true, .repeats = true, .required = required});
  add(app_, told_.back(), to);
}

void Options::without_effect(const std::string& name) { app_.add_flag(name)->group(kHidden); }

void Options::refused(const std::string& name, bool takes_value, const Error& why) {
  if (takes_value) {
    app_.add_option_function<std::string>(name, [why](const std::string&) { throw Error(why); })
        ->group(kHidden);
  } else {
    app_.add_flag_callback(name, [why] { throw Error(why); })->group(kHidden);
  }
}

std::vector<ToldOption> told_by(const std::function<void(Options&)>& declare) {
  CLI::App app;
  Options options(app);
  declare(options);
  return options.told();
}

std::vector<std::string> names_of(const ToldOption& option) {
  return split_names(option.text.names);
}

const ToldOption* find_option(const std::vector<ToldOption>& options, const std::string& name) {
  for (const ToldOption& option : options) {
    if (option.is_argument) continue;
    const auto names = split_names(option.text.names + "," + option.text.also);
    if (std::find(names.begin(), names.end(), name) != names.end()) return &option;
  }
  return nullptr;
}

}  // namespace moorage::cli
