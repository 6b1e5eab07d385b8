# p2pshim_add_test(NAME name COMMAND command [argument...]
#                  [FAIL_ON condition...] [OPTIONS option...] [JUNIT file] [WORKING_DIRECTORY folder])
#
# Adds a test that runs a command under `p2pshim run --fail-on`, and fails if the command does, or if a condition is true:
# staged[=BYTES], bounce, hazard, error, unverified, slow=GB/s (staged, hazard and error if none is named). The command may
# be a target. OPTIONS are further ones of `p2pshim run`, such as --sim 2.
function(p2pshim_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 _test "" "NAME;JUNIT;WORKING_DIRECTORY" "COMMAND;FAIL_ON;OPTIONS")
  if(_test_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "p2pshim_add_test: unknown arguments: ${_test_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT _test_NAME OR NOT _test_COMMAND)
    message(FATAL_ERROR "p2pshim_add_test needs NAME and COMMAND")
  endif()
  if(NOT _test_FAIL_ON)
    set(_test_FAIL_ON staged hazard error)
  endif()
  string(REPLACE ";" "," _conditions "${_test_FAIL_ON}")
  set(_options --quiet --fail-on "${_conditions}")
  if(_test_JUNIT)
    list(APPEND _options --junit "${_test_JUNIT}")
  endif()
  list(GET _test_COMMAND 0 _program)
  list(REMOVE_AT _test_COMMAND 0)
  # `add_test` itself replaces a target only where it is the command.
  if(TARGET "${_program}")
    set(_program "$<TARGET_FILE:${_program}>")
  endif()
  set(_folder)
  if(_test_WORKING_DIRECTORY)
    set(_folder WORKING_DIRECTORY "${_test_WORKING_DIRECTORY}")
  endif()
  add_test(NAME "${_test_NAME}" ${_folder}
    COMMAND "${p2pshim_COMMAND}" run ${_options} ${_test_OPTIONS} -- "${_program}" ${_test_COMMAND})
endfunction()
